"""datamask: curate pre-training text by mask learning (DATAMASK, arXiv 2512.24265), with a certificate."""

__version__ = "0.1.0"
