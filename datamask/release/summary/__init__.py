"""What a corpus is made of, for the public: the summary that the EU's AI Act asks for, and Croissant metadata."""

from datamask.release.summary.write import FILES, publish_files, render_summary, summary_files

__all__ = ["FILES", "publish_files", "render_summary", "summary_files"]
