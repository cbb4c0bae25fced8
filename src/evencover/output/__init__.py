"""Output: atomic files, prediction sets, and resumable folders."""
