"""What is written: whole files or none, prediction sets, and folders of parts."""
