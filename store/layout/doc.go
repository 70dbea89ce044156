// Package layout knows the names under a store's root and where each session
// lies (reference 1). It reads names and the small files that record places;
// it knows neither Git nor messages.
//
// A session id leads to a directory by the first of these that looks like a
// session: the place that locations.json records, projects/<project>/<id> of
// the project that the session is bound to, <root>/<id>, and the working
// folder of that project, which is a migration source and never written to.
// The record comes first on purpose: while a session is being moved, its new
// directory may be complete before the record names it, and must not be served
// until then.
//
// A root without a state directory is standalone ("explicit" in the
// reference): it consults no project registry and finds project-bound
// sessions by looking into projects/.
//
// Reading never writes. What writes (RecordLocation, ForgetLocation, Bind,
// Unbind, WriteTombstone, AdoptRoot) says which lock its caller holds; this
// package takes none. Answers are as fresh as the disk: every Resolve looks again, and
// reads locations.json and the project registry again when their stamps
// changed.
package layout
