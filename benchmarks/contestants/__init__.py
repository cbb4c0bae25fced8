"""One file per implementation under test; each defines a class named Contestant."""
