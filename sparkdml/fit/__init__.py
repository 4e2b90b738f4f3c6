"""What surrounds a fit: rows on their way in, rounds watched, states kept."""
