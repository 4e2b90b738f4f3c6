"""What one worker does with its own rows."""
