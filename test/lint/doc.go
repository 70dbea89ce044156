// Package lint holds the house rules that a test can state: who may import
// whom, that every package says what it is for, and what may not be written
// where. The rules and their reasons are in docs/architecture.md and
// CONTRIBUTING.md.
package lint
