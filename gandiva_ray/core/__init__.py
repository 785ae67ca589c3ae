"""What is decided, and nothing of how it is done: pure, standard library only, the same in a simulator and in Ray."""
