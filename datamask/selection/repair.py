"""From an order of preference to a mask that holds the limits: quotas first, then the budget, then the length bound."""

from __future__ import annotations

import numpy as np

from datamask.selection.feasible import fill_in_order
from datamask.selection.limits import Limits

WINDOW = 64  # documents on either side of the cut looked at first when lengths are exchanged


def fill_limited(limits: Limits, order: np.ndarray) -> np.ndarray:
    """(N,) bool: documents taken in this order as far as the limits let them. order: (N,) row numbers, best first."""
    if limits.length is not None and (limits.length.coefficients == 1).all():  # a token budget
        return _tilt(limits, order)
    selected = _fill(limits, order)
    if limits.length is not None:
        _exchange_lengths(limits, order, selected)
    return selected


def _fill(limits: Limits, order: np.ndarray) -> np.ndarray:
    if not limits.groupings:
        return fill_in_order(Limits(limits.weights, limits.size), order)
    return _fill_one(limits, order) if len(limits.groupings) == 1 else _fill_many(limits, order)


def _fill_one(limits: Limits, order: np.ndarray) -> np.ndarray:
    """One column: within each value the first to its minimum, then the first of all values under their maximums."""
    grouping, weights = limits.groupings[0], limits.weights
    low, high = grouping.low[grouping.codes], grouping.high[grouping.codes]
    by_group = order[np.argsort(grouping.codes[order], kind="stable")]
    spent = np.cumsum(weights[by_group])
    codes = grouping.codes[by_group]
    first = np.searchsorted(codes, np.arange(len(grouping.names)))
    before_group = spent[first] - weights[by_group[first]]
    within = np.empty(len(order))
    within[by_group] = spent - before_group[codes]  # weight of the value's documents up to this one
    selected = (within - weights < low - 1e-9) & (within <= high + 1e-9)
    over = weights[selected].sum() - limits.size  # tokens: the documents that reach the minimums may be too many
    last = order[::-1][(selected & (within > low + 1e-9))[order[::-1]]]
    selected[last[np.cumsum(weights[last]) - weights[last] < over - 1e-9]] = False
    rest = order[(~selected & (within <= high + 1e-9))[order]]
    left = limits.size - weights[selected].sum()
    selected[rest[np.cumsum(weights[rest]) <= left + 1e-9]] = True
    for beyond in (False, True):  # what is left goes to the next that fit, at last to one beyond a maximum
        rest = order[~selected[order]]
        while len(rest):
            left = limits.size - weights[selected].sum()
            sums = np.bincount(grouping.codes[selected], weights[selected], minlength=len(grouping.names))
            after = sums[grouping.codes[rest]] + (0 if beyond else weights[rest])
            rest = rest[(weights[rest] <= left + 1e-9) & (after < high[rest] + (-1e-9 if beyond else 1e-9))]
            selected[rest[:1]] = True
            rest = rest[1:]
    return selected


def _fill_many(limits: Limits, order: np.ndarray) -> np.ndarray:
    """Several columns: twice through the order, first for the minimums, then for the budget."""
    weights = limits.weights.tolist()
    columns = [grouping.codes.tolist() for grouping in limits.groupings]
    short = [grouping.low.tolist() for grouping in limits.groupings]
    room = [grouping.high.tolist() for grouping in limits.groupings]
    left = limits.size + 1e-9
    selected = np.zeros(len(order), dtype=bool)
    for for_minimums in (True, False):
        for row in order.tolist():
            weight = weights[row]
            if selected[row] or weight > left:
                continue
            values = [codes[row] for codes in columns]
            if any(column[value] + 1e-9 < weight for column, value in zip(room, values, strict=True)):
                continue
            if for_minimums and all(column[value] < 1e-9 for column, value in zip(short, values, strict=True)):
                continue
            selected[row] = True
            left -= weight
            for column, lacking, value in zip(room, short, values, strict=True):
                column[value] -= weight
                lacking[value] = max(0.0, lacking[value] - weight)
    _exchange_groups(limits, order, selected)
    return selected


def _exchange_groups(limits: Limits, order: np.ndarray, selected: np.ndarray) -> None:
    """Where columns stood in one another's way: swaps that bring every count nearer to its range, least loss first."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    weights = limits.weights

    def excess(mask: np.ndarray) -> list[np.ndarray]:
        found = []
        for grouping in limits.groupings:
            sums = np.bincount(grouping.codes[mask], weights[mask], minlength=len(grouping.names))
            found.append(np.maximum(sums - grouping.high, 0) - np.maximum(grouping.low - sums, 0))
        return found

    for _ in range(len(order)):
        over = excess(selected)
        lacking = limits.size - weights[selected].sum()
        wanted = np.zeros(len(order))  # how much taking a document mends
        harm = np.zeros(len(order))
        for grouping, amount in zip(limits.groupings, over, strict=True):
            sums = np.bincount(grouping.codes[selected], weights[selected], minlength=len(grouping.names))
            wanted += (amount < -1e-9)[grouping.codes]
            harm += (sums + 1e-9 >= grouping.high)[grouping.codes]
        unmet = any((np.abs(amount) > 1e-9).any() for amount in over)
        smallest = weights[~selected].min() if (~selected).any() else np.inf
        if not unmet and lacking < smallest - 1e-9:
            return
        candidates = np.flatnonzero(~selected)
        if not len(candidates):
            return
        taken = candidates[np.lexsort((rank[candidates], (harm - 2 * wanted)[candidates]))[0]]
        if lacking >= weights[taken] - 1e-9 and not harm[taken]:
            selected[taken] = True
            continue
        given = np.flatnonzero(selected)
        cost = np.zeros(len(given))
        for grouping in limits.groupings:  # giving a document of a full value frees the room the taken one needs
            sums = np.bincount(grouping.codes[selected], weights[selected], minlength=len(grouping.names))
            same = grouping.codes[given] == grouping.codes[taken]
            cost += np.where(same, 0, (sums - weights[taken] < grouping.low)[grouping.codes[given]] * 2.0)
            full = sums[grouping.codes[taken]] + 1e-9 >= grouping.high[grouping.codes[taken]]
            cost += np.where(same | (not full), 0, 2.0)
        if cost.min() > 0 and not wanted[taken]:
            return
        selected[taken] = True
        selected[given[np.lexsort((-rank[given], cost))[0]]] = False


def _tilt(limits: Limits, order: np.ndarray) -> np.ndarray:
    """A token budget buys more documents where short ones come first: a document's place in the order is moved by its
    tokens, as little as brings the number of documents within the length bound."""
    length, count = limits.length, len(order)
    assert length is not None
    rank = np.empty(count)
    rank[order] = np.arange(count)
    tokens = limits.weights / limits.weights.mean()

    def fill(tilt: float) -> np.ndarray:
        return _fill(limits, np.argsort(rank + tilt * count * tokens, kind="stable"))

    selected = fill(0.0)
    short = selected.sum() < length.low
    straight, far, tilt = 0.0, None, 0.01 if short else -0.01
    for _ in range(60):  # twice as much until it is too much, then between the two
        if length.low <= selected.sum() <= length.high:
            break
        selected = fill(tilt)
        if (selected.sum() < length.low) == short:
            straight = tilt
        else:
            far = tilt
        tilt = 2 * tilt if far is None else (straight + far) / 2
    return selected


def _exchange_lengths(limits: Limits, order: np.ndarray, selected: np.ndarray) -> None:
    """Swaps of the documents nearest the cut, of equal group values, until the length bound holds."""
    length = limits.length
    assert length is not None
    per_weight = length.coefficients / limits.weights
    chosen, left = order[selected[order]][::-1], order[~selected[order]]  # nearest the cut first
    cells = np.zeros(len(order), dtype=np.int64)
    for grouping in limits.groupings:
        cells = cells * (len(grouping.names) + 1) + grouping.codes
    window = WINDOW
    while True:
        total = float(length.coefficients[selected].sum())
        sign = 1 if total > length.high else -1 if total < length.low else 0
        if not sign:
            return
        out, into = chosen[:window], left[:window]
        out, into = out[selected[out]], into[~selected[into]]
        for cell in np.unique(cells[out]):
            gives = out[cells[out] == cell]
            takes = into[cells[into] == cell]
            gives = gives[np.argsort(-sign * per_weight[gives], kind="stable")]
            takes = takes[np.argsort(sign * per_weight[takes], kind="stable")]
            pairs = min(len(gives), len(takes))
            change = length.coefficients[takes[:pairs]] - length.coefficients[gives[:pairs]]
            helpful = np.flatnonzero(sign * change < 0)
            edge = length.high if sign > 0 else length.low
            for pair in helpful:
                if sign * (total - edge) <= 0:
                    break
                spent = limits.weights[selected].sum() + limits.weights[takes[pair]] - limits.weights[gives[pair]]
                if spent > limits.size + 1e-9:
                    continue
                selected[gives[pair]], selected[takes[pair]] = False, True
                total += float(change[pair])
        if window >= len(order):
            return
        window *= 2
