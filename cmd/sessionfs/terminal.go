package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// The colours that are used, as SGR parameters.
const (
	red     = "31"
	green   = "32"
	yellow  = "33"
	magenta = "35"
	cyan    = "36"
	bold    = "1"
)

// colours reports whether standard output gets colours.
func (a *app) colours() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal(a.stdout) && os.Getenv("TERM") != "dumb"
}

// paint colours a text, if colours are wanted.
func (a *app) paint(sgr, text string) string {
	if text == "" || !a.colours() {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// gathered runs fn with a writer that gathers what is written into large pieces:
// where nobody looks on, a line need not be there before the next one.
func gathered(out io.Writer, fn func(w io.Writer) error) error {
	w := bufio.NewWriterSize(out, 1<<16)
	err := fn(w)
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// paged runs fn with a writer that leads to the pager when standard output is a
// terminal, else to standard output. Who leaves the pager early is no error.
func (a *app) paged(fn func(w io.Writer) error) error {
	if !terminal(a.stdout) {
		return gathered(a.stdout, fn)
	}
	if a.noPager || a.pager == "" || a.pager == "cat" {
		return fn(a.stdout)
	}
	cmd := exec.Command("sh", "-c", a.pager)
	cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fn(a.stdout)
	}
	if err := cmd.Start(); err != nil {
		return fn(a.stdout)
	}
	w := bufio.NewWriterSize(in, 1<<16)
	err = errors.Join(fn(w), w.Flush())
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	in.Close()
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	if err == nil && waitErr != nil && !errors.As(waitErr, &exit) {
		err = failf(exitFailure, "", "pager: %w", waitErr)
	}
	return err
}

// shown is a text as standard output gets it: on a terminal without the controls
// with which a message could steer it, anywhere else byte for byte.
func (a *app) shown(text []byte) []byte {
	if !terminal(a.stdout) {
		return text
	}
	return harmless(text)
}

// harmless replaces the characters that steer a terminal, but for line breaks and
// tabs.
func harmless(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && steers(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// printLine prints a text and a line break, shown as the stream needs it.
func (a *app) printLine(text string) error {
	_, err := a.stdout.Write(a.shown([]byte(text + "\n")))
	return err
}

// confirm asks a question on standard error and reads the answer from a
// terminal. Where standard input is none, nobody is asked.
func (a *app) confirm(question string) (yes, asked bool) {
	if !terminal(a.stdin) {
		return false, false
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", escaped(question))
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(a.stderr)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, true
	}
	return false, true
}

// progress draws a bar on standard error while long work goes on. Where that is
// no terminal it does nothing.
type progress struct {
	w     io.Writer // nil: silent
	label string
	every time.Duration // between two drawings, and before the first
	drawn time.Time
	shown bool
}

const (
	barWidth   = 30
	barRefresh = 100 * time.Millisecond
)

func (a *app) progress(label string) *progress {
	p := &progress{label: label, every: barRefresh, drawn: time.Now()}
	if a.drawAll {
		p.every = 0
	}
	if terminal(a.stderr) {
		p.w = a.stderr
	}
	return p
}

// step draws how much is done; the first drawing waits a moment, so that short
// work shows none.
func (p *progress) step(done, total int) {
	if p.w == nil || total <= 0 || time.Since(p.drawn) < p.every {
		return
	}
	p.drawn, p.shown = time.Now(), true
	filled := min(done*barWidth/total, barWidth)
	fmt.Fprintf(p.w, "\r%s [%s%s] %d/%d", p.label, bytes.Repeat([]byte("#"), filled), bytes.Repeat([]byte("."), barWidth-filled), done, total)
}

// end takes the bar away.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
