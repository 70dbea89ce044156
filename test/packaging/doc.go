// Package packaging tests what a user installs: the Makefile's install and
// uninstall, the Debian package, and that the same sources give the same bytes.
package packaging
