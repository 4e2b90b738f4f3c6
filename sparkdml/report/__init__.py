"""What a run tells: history, progress."""
