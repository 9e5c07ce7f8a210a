"""What is to be solved: the pool, its budget and limits, and the calibrated objective."""
