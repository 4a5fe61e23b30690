"""What the book needs beside the library: exercises with their checkers, bugs to find, figures that move, and plots."""
