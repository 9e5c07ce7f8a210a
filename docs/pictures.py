"""Makes the pictures of these pages anew: the report, λ's front, and Prefect's UI.

    datamask sweep OUT                                                   # λ's front of a curated corpus
    python docs/pictures.py OUT                                          # report.png, front.png
    PREFECT_API_URL=http://127.0.0.1:4200/api python docs/pictures.py OUT    # also run.png and form.png, of that server

The last run of the flow `curate` on that server and the form of the deployment curate/curate are shown. Needs Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT = 15_000  # milliseconds of the page's own clock, in which the UI loads its data


def take(browser: str, address: str, name: str, width: int, height: int) -> None:
    """A picture of a page, of this size."""
    place = IMAGES / f"{name}.png"
    subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={place}",
         f"--window-size={width},{height}", f"--virtual-time-budget={WAIT}", address],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    print(place)


def pages_of_prefect() -> dict[str, str]:
    """The addresses of the last run and of the form, in the UI of PREFECT_API_URL."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        curate = FlowFilter(name=FlowFilterName(any_=["curate"]))
        runs = client.read_flow_runs(flow_filter=curate, sort=FlowRunSort.START_TIME_DESC, limit=1)
        deployment = client.read_deployment_by_name("curate/curate")
    ui = os.environ["PREFECT_API_URL"].removesuffix("/api")
    return {"run": f"{ui}/runs/flow-run/{runs[0].id}", "form": f"{ui}/deployments/deployment/{deployment.id}/run"}


def main() -> None:
    """See the module."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is there")
    out = Path(sys.argv[1]).resolve()
    take(browser, (out / "latest" / "report.html").as_uri(), "report", 1100, 1200)
    shutil.copy(out / "work" / "sweep" / "front.png", IMAGES / "front.png")
    if os.environ.get("PREFECT_API_URL"):
        pages = pages_of_prefect()
        take(browser, pages["run"], "run", 1100, 760)
        take(browser, pages["form"], "form", 1100, 1100)


if __name__ == "__main__":
    main()
