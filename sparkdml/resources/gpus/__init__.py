"""GPUs: how a fit gets them from Spark, which ones a task was given, and what computes on them."""
