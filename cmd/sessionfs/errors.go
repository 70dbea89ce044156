package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// cliError is a failure that the command line itself found.
type cliError struct {
	status int    // exit status
	err    error  // what happened, as it follows "sessionfs: "
	hint   string // the next step, "" when there is none to name
}

// Error returns the text without prefix and hint.
func (e *cliError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *cliError) Unwrap() error { return e.err }

// failf makes a cliError.
func failf(status int, hint, format string, args ...any) error {
	return &cliError{status: status, hint: hint, err: fmt.Errorf(format, args...)}
}

// usagef makes the error for a command line that cannot be understood.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	hint := "'" + cmd.CommandPath() + " --help' shows the usage"
	return failf(exitUsage, hint, format, args...)
}

// printError writes an error, see errorText.
func printError(w io.Writer, err error) {
	io.WriteString(w, errorText(err))
}

// errorText renders an error in the program's one voice: the prefix, the
// text, the code in brackets, and a hint on a line of its own. What would break
// the line, or steer a terminal, is escaped: an id or a path may hold it.
func errorText(err error) string {
	var printed *printedError
	if errors.As(err, &printed) {
		return printed.text
	}
	var b strings.Builder
	if all, ok := err.(interface{ Unwrap() []error }); ok { // errors.Join's
		for _, one := range all.Unwrap() {
			b.WriteString(errorText(one))
		}
		return b.String()
	}
	b.WriteString("sessionfs: ")
	b.WriteString(escaped(strings.TrimRight(causes(err), "\n")))
	if code := store.CodeOf(err); code != "" {
		fmt.Fprintf(&b, " [%s]", code)
	}
	b.WriteByte('\n')
	if hint := hintFor(err); hint != "" {
		b.WriteString("hint: " + escaped(hint) + "\n")
	}
	return b.String()
}

// causes is an error's text with what errors.Join put on lines of their own
// behind each other.
func causes(err error) string {
	text := err.Error()
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return strings.Replace(text, inner.Error(), causes(inner), 1)
		}
	case interface{ Unwrap() []error }:
		var was, are []string
		for _, one := range e.Unwrap() {
			was, are = append(was, one.Error()), append(are, causes(one))
		}
		if text == strings.Join(was, "\n") {
			return strings.Join(are, "; ")
		}
		for i := range was { // fmt.Errorf's
			text = strings.Replace(text, was[i], are[i], 1)
		}
	}
	return text
}

// hintFor returns the next step: the error's own, else the one that its code
// has on the command line.
func hintFor(err error) string {
	var c *cliError
	if errors.As(err, &c) && c.hint != "" {
		return c.hint
	}
	var e *store.Error
	if !errors.As(err, &e) {
		return ""
	}
	if e.Hint != "" {
		return e.Hint
	}
	return codeHint(e.Code)
}

func codeHint(code store.Code) string {
	switch code {
	case store.RunActive:
		return "wait for the run to end, or stop it, and try again"
	case store.NotFound:
		return "'sessionfs ls --archived' lists the sessions, 'sessionfs branch SESSION' a session's branches"
	case store.Ambiguous:
		return "give more characters, or the exact id"
	case store.SummaryHead:
		return "choose a message of the conversation instead of the summary"
	case store.PredecessorMissing:
		return "name the message that it follows as \"predecessor\""
	case store.Immutable:
		return "the record never changes: append, edit or move the head instead"
	case store.Exists:
		return "choose another name"
	case store.BurntID:
		return "a deleted session's id is never used again: choose another"
	case store.Conflict:
		return "look at the present state and try again"
	case store.Corrupt:
		return "'sessionfs show SESSION' lists what is wrong; the rest stays readable"
	case store.Locked:
		return "another process is writing: try again"
	case store.ReadOnly:
		return "use a store that may be written"
	case store.TooLarge:
		return "make it smaller, or attach it as a file"
	case store.NoSpace:
		return "make room and try again"
	}
	return ""
}
