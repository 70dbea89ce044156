// Package registry holds index.json: one summary row for each session, a cache
// of what the sessions' meta.json files say, plus the preview (reference 2.7).
//
// The file belongs to several writers at once, and the peer rewrites all of it
// from its own memory without a lock (reference 3.2, 6.14). So a Registry
// remembers which rows, and which fields of them, it was told to change, and
// Flush puts just these into whatever the file holds by then: rows of others
// keep their bytes and their order, unknown keys included. What another writer
// dropped or overwrote is reported by Reload; the owner of the truth, who has
// read meta.json, decides what to do about it.
//
// Changes are made in memory and cost no I/O; when to Flush, and under which
// lock, is the caller's business. No mutex is held during I/O that Row, Rows
// or Put would wait for.
package registry
