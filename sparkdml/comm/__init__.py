"""How updates travel between workers and the parameter side."""
