//go:build race

package harness

// raceEnabled says whether the test, and so the binary, runs under the race
// detector.
const raceEnabled = true
