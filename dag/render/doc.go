// Package render turns a session's graph and messages into text: a transcript
// to read, the graph as an ASCII drawing and for Graphviz, a one-line preview,
// and names that can be file names.
//
// Everything in it is a pure function of its arguments. The output holds no
// local time, no random order and nothing of the machine, so that the same
// session always reads the same, in the mount and on the command line.
package render
