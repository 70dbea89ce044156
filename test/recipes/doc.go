// Package recipes holds fifteen recipes as tests, drawn from what broke for
// users of comparable filesystems, editors and session tools. Each says what
// that was and what is right on this mount. They are the complete list: what
// the rooms test in depth is beside them in test/mounted, test/editors and
// test/life.
package recipes
