"""The parameter server: coefficients in a process of their own, to which workers push updates."""
