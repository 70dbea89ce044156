package conformance

// difference names a reason for which the right answer is not the peer's. The
// right one is derived from the files of the store by the suite's own rules,
// and compared like any other.
type difference string

const (
	keptSession   difference = "a session that the peer removed"
	damaged       difference = "the peer failed on damaged data"
	loops         difference = "the peer never returns"
	laterRevision difference = "a later revision's rule"
	diskRows      difference = "a row of the list is the disk's"
	registryRows  difference = "a row of index.json is the disk's"
	goneRows      difference = "a row of index.json whose session is gone"
	deadRuns      difference = "a run that died is over"
)

// statedDifferences says of each why, and who says so: the sections are those
// of the store's reference, and a number after "row" is one of the table of
// disagreements in section 15.
var statedDifferences = map[difference]string{
	keptSession: "Opening loses nothing. The peer of the recording removed sessions with an empty history/ " +
		"(row 9: it must be missing), expired archives (row 10: not implemented), and asked neither Git nor workdir/. " +
		"Here a session goes only when history/ is missing, Git's newest tree is empty and workdir/ holds nothing; " +
		"a history that vanished is restored from Git. Model: sections 1.4, 2, 5 and 6.",
	damaged: "A file of history/ that is not one JSON object in UTF-8, or has no text for an id, is left out; " +
		"the others answer (section 2.5; the recording's own README allows it).",
	loops: "The walk of section 5.9 with a guard: each node counts once.",
	laterRevision: "The branches of section 5.7 are those of a later revision than the recorded one (row 33); " +
		"their heads are recorded beside the answer, derived from that rule.",
	diskRows: "What is on disk is listed whatever the registry says, with meta.json's values over a row's " +
		"(sections 2.7, 3.5, 8.2, 8.6). A directory whose meta.json does not speak for it has a fresh row.",
	registryRows: "The same for the file: it is brought up to what is on disk at open.",
	goneRows: "A row whose session is nowhere is not listed, and stays in the file as it is (section 2.7) unless it is " +
		"one of an empty shell (section 8.5).",
	deadRuns: "At start running becomes interrupted in meta.json and in the registry (row 1), and cancelling " +
		"cancelled (section 8.3), also where the row had been set to idle before (section 8.3, last sentence).",
}
