"""What lives inside a trial's process: the template it is forked from, and the session that gives its device up."""
