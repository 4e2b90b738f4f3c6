"""What Spark gave us: slots, interpreters, threads."""
