// Package jsonedit reads and changes JSON text without re-encoding what did not
// change. It knows nothing of sessions.
//
// The dialect is the peer's, Python's json module (reference 2.1): NaN,
// Infinity and -Infinity are numbers, 1e400 is infinite, an integer has any
// number of digits, a \u escape may be half of a surrogate pair, and of
// duplicate keys the last one counts. A byte order mark and invalid UTF-8 are
// refused, and so is nesting deeper than MaxDepth: no input makes the stack
// grow with its size.
//
// A value is handled as the bytes of its source, called raw here. An Object is
// the text of one JSON object and the places of its members; Set replaces the
// bytes of one value and leaves all others where they are, so unknown keys,
// their order, spacing, big integers and escapes survive every edit.
//
// Raw values passed to functions that do not return an error must be valid
// JSON, as they are when they came from this package.
package jsonedit
