"""What the book needs beside the library: exercises, checkers, bugs to find, figures, plots, a policy one can list."""
