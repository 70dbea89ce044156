package render

import (
	"bytes"
	"fmt"
)

// maxEdits bounds the search for the shortest edit: two texts that have less in
// common are shown as one block removed and one added.
const maxEdits = 2000

// edit is one line of a diff: ' ' in both, '-' in the old, '+' in the new.
type edit struct {
	op   byte
	line []byte
}

// UnifiedDiff returns the difference of two texts in the unified format, with
// context unchanged lines around each change; nothing when they are equal. A
// nil text is a file that does not exist. What holds a NUL byte is only said to
// differ.
func UnifiedDiff(oldName, newName string, a, b []byte, context int) []byte {
	if bytes.Equal(a, b) && (a == nil) == (b == nil) {
		return nil
	}
	var out bytes.Buffer
	if bytes.IndexByte(a, 0) >= 0 || bytes.IndexByte(b, 0) >= 0 {
		fmt.Fprintf(&out, "Binary files %s and %s differ\n", oldName, newName)
		return out.Bytes()
	}
	if a == nil {
		oldName = "/dev/null"
	}
	if b == nil {
		newName = "/dev/null"
	}
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", oldName, newName)
	edits := lineEdits(splitLines(a), splitLines(b))
	writeHunks(&out, edits, max(context, 0))
	return out.Bytes()
}

// splitLines returns the lines with their ends.
func splitLines(text []byte) [][]byte {
	var out [][]byte
	for line := range bytes.Lines(text) {
		out = append(out, line)
	}
	return out
}

// lineEdits returns the lines of both texts in the order of a diff.
func lineEdits(a, b [][]byte) []edit {
	start := 0
	for start < len(a) && start < len(b) && bytes.Equal(a[start], b[start]) {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && bytes.Equal(a[len(a)-1-end], b[len(b)-1-end]) {
		end++
	}
	var out []edit
	for _, line := range a[:start] {
		out = append(out, edit{' ', line})
	}
	out = append(out, shortestEdit(a[start:len(a)-end], b[start:len(b)-end])...)
	for _, line := range a[len(a)-end:] {
		out = append(out, edit{' ', line})
	}
	return out
}

// shortestEdit is the greedy algorithm of Myers: it walks the edit graph along
// its diagonals, one edit further each round, and goes back along the rounds.
func shortestEdit(a, b [][]byte) []edit {
	limit := min(len(a)+len(b), maxEdits)
	far := map[int]int{1: 0} // diagonal → how far into a
	var rounds []map[int]int
	for d := 0; d <= limit; d++ {
		before := make(map[int]int, len(far))
		for k, x := range far {
			before[k] = x
		}
		rounds = append(rounds, before)
		for k := -d; k <= d; k += 2 {
			x := far[k-1] + 1
			if k == -d || k != d && far[k-1] < far[k+1] {
				x = far[k+1]
			}
			for x < len(a) && x-k < len(b) && x-k >= 0 && bytes.Equal(a[x], b[x-k]) {
				x++
			}
			far[k] = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(rounds, a, b)
			}
		}
	}
	return replaceAll(a, b)
}

// backtrack follows the rounds from the end of both texts to their beginning.
func backtrack(rounds []map[int]int, a, b [][]byte) []edit {
	var out []edit
	x, y := len(a), len(b)
	for d := len(rounds) - 1; d >= 0; d-- {
		far, k := rounds[d], x-y
		from := k - 1
		if k == -d || k != d && far[k-1] < far[k+1] {
			from = k + 1
		}
		px := far[from]
		py := px - from
		for x > px && y > py && x > 0 && y > 0 {
			x, y = x-1, y-1
			out = append(out, edit{' ', a[x]})
		}
		if d == 0 {
			break
		}
		if x == px {
			y--
			out = append(out, edit{'+', b[y]})
		} else {
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func replaceAll(a, b [][]byte) []edit {
	var out []edit
	for _, line := range a {
		out = append(out, edit{'-', line})
	}
	for _, line := range b {
		out = append(out, edit{'+', line})
	}
	return out
}

// writeHunks writes the changes with their context; changes whose contexts
// touch share a hunk.
func writeHunks(out *bytes.Buffer, edits []edit, context int) {
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' {
			i++
			continue
		}
		from, to := max(i-context, 0), hunkEnd(edits, i, context)
		writeHunk(out, edits, from, to)
		i = to
	}
}

// hunkEnd returns where the hunk ends that has a change at i.
func hunkEnd(edits []edit, i, context int) int {
	last := i
	for j := i; j < len(edits) && j <= last+2*context+1; j++ {
		if edits[j].op != ' ' {
			last = j
		}
	}
	return min(last+1+context, len(edits))
}

func writeHunk(out *bytes.Buffer, edits []edit, from, to int) {
	oldAt, newAt, oldLen, newLen := 1, 1, 0, 0
	for i, e := range edits[:to] {
		inOld, inNew := e.op != '+', e.op != '-'
		switch {
		case i < from && inOld && inNew:
			oldAt, newAt = oldAt+1, newAt+1
		case i < from && inOld:
			oldAt++
		case i < from:
			newAt++
		default:
			if inOld {
				oldLen++
			}
			if inNew {
				newLen++
			}
		}
	}
	out.WriteString("@@ -" + hunkRange(oldAt, oldLen) + " +" + hunkRange(newAt, newLen) + " @@\n")
	for _, e := range edits[from:to] {
		out.WriteByte(e.op)
		out.Write(e.line)
		if !bytes.HasSuffix(e.line, []byte("\n")) {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// hunkRange is a hunk's range: an empty one names the line before it.
func hunkRange(at, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", at-1)
	case 1:
		return fmt.Sprint(at)
	}
	return fmt.Sprintf("%d,%d", at, n)
}
