package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/fsnode"
)

// readyEnv names the descriptor on which a detached process reports.
const readyEnv = "SESSIONFS_READY_FD"

// maxLog is the size above which a background log is set aside at the next
// mount.
const maxLog = 1 << 20

// report is what a detached process says once: that the mount answers, or why
// there is none.
type report struct {
	Ready  bool   `json:"ready"`
	Status int    `json:"status,omitempty"`
	Text   string `json:"text,omitempty"` // the error as it would be printed
}

// startBackground starts this program again, detached, and returns when its
// mount answers.
func (a *app) startBackground(loc location, point string, opt mountOptions) error {
	logFile, err := backgroundLog(point)
	if err != nil {
		return failf(exitFailure, "", "mount: log file: %w", err)
	}
	defer logFile.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return failf(exitFailure, "", "mount: %w", err)
	}
	defer reader.Close()
	args := append([]string{"mount", "--store", loc.root, "--log-level", a.logLevel, "--log-format", a.logFormat,
		"--lock-timeout", a.lockTimeout.String()}, opt.args()...)
	child := exec.Command("/proc/self/exe", append(args, "--", point)...)
	child.Args[0] = os.Args[0]
	child.Dir = "/"
	child.Env = append(os.Environ(), readyEnv+"=3")
	child.Stdout, child.Stderr = logFile, logFile
	child.ExtraFiles = []*os.File{writer}
	part := newLogPart(logFile)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	writer.Close()
	if err != nil {
		return failf(exitFailure, "", "mount: %w", err)
	}
	return awaitReport(child, reader, part, point)
}

// awaitReport reads the child's report; its pipe is closed without one when
// the child dies.
func awaitReport(child *exec.Cmd, reader io.Reader, log logPart, point string) error {
	var r report
	if err := json.NewDecoder(reader).Decode(&r); err != nil {
		waitErr := child.Wait()
		return failf(exitFailure, "its output is in "+log.name, "mount: the background process ended before the mount was ready: %v", waitErr)
	}
	if !r.Ready {
		child.Wait() // the report says how it ended
		return &printedError{status: r.Status, text: helperWords(log, r.Text) + r.Text}
	}
	if err := fsnode.Probe(point); err != nil {
		return failf(exitMount, "its output is in "+log.name, "mount: mounted, but %w", err)
	}
	return child.Process.Release()
}

// logPart is what one process wrote to a background log.
type logPart struct {
	name  string
	start int64 // bytes that were there before
}

func newLogPart(file *os.File) logPart {
	part := logPart{name: file.Name()}
	if info, err := file.Stat(); err == nil {
		part.start = info.Size()
	}
	return part
}

// helperWords returns what was said beside the report: fusermount3 gives its
// reasons on its own standard error.
func helperWords(log logPart, text string) string {
	file, err := os.Open(log.name)
	if err != nil {
		return ""
	}
	defer file.Close()
	said, err := io.ReadAll(io.NewSectionReader(file, log.start, maxLog))
	if err != nil {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(string(said)) {
		if !strings.Contains(text, line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// printedError carries the text that a detached process would have printed.
type printedError struct {
	status int
	text   string
}

// Error returns the text.
func (e *printedError) Error() string { return e.text }

// backgroundLog opens the log of a background mount.
func backgroundLog(point string) (*os.File, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "log")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "mount-"+mountKey(point)+".log")
	if info, err := os.Stat(name); err == nil && info.Size() > maxLog {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// reporter tells the starter how the mount went: through the pipe of a
// detached process, else on standard output. It speaks once.
type reporter struct {
	pipe   *os.File // nil in the foreground
	stdout io.Writer
	done   bool
}

// newReporter takes the descriptor out of the environment, so that no child
// of this process inherits the idea.
func newReporter(stdout io.Writer) *reporter {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	if err != nil || fd < 3 {
		return &reporter{stdout: stdout}
	}
	os.Unsetenv(readyEnv)
	syscall.CloseOnExec(fd)
	return &reporter{pipe: os.NewFile(uintptr(fd), "ready"), stdout: stdout}
}

// ready says that the mount answers.
func (r *reporter) ready(root, point string) {
	r.done = true
	if r.pipe == nil {
		fmt.Fprintf(r.stdout, "sessionfs: %s mounted at %s\n", root, point)
		return
	}
	printJSON(r.pipe, report{Ready: true})
	r.pipe.Close()
}

// failed hands an error over to the starter, once; in the foreground it is
// printed by run like any other.
func (r *reporter) failed(err error) {
	if r.pipe == nil || r.done || err == nil {
		return
	}
	r.done = true
	printJSON(r.pipe, report{Status: exitStatus(err), Text: errorText(err)})
	r.pipe.Close()
}
