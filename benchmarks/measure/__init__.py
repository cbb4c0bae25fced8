"""What runs inside the fresh processes: each file is one kind of job, dictionary in and out."""
