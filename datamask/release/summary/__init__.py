"""What a corpus is made of, for the public: the summary that the EU's AI Act asks for, and Croissant metadata."""

from datamask.release.summary.facts import summarise
from datamask.release.summary.write import FILES, render_summary, summary_files, write_summary

__all__ = ["FILES", "render_summary", "summarise", "summary_files", "write_summary"]
