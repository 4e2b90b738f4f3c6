"""Takes the place of the real package in workers of tests."""
