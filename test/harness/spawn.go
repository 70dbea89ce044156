package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Process is another process that a test talks to, one JSON line for a
// request and one for its answer.
type Process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Spawn starts a copy of the test binary in a role given to Main, or
// "foreign", see Foreign. It ends with the test.
func Spawn(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = Environ(t.TempDir(), envRole+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.Close)
	return p
}

// Close ends the process: its stdin is closed, and it is killed when that is
// not enough.
func (p *Process) Close() {
	_ = p.in.Close()
	timer := time.AfterFunc(Slow(10*time.Second), func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
}

// Send sends a request without waiting for its answer.
func (p *Process) Send(request any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = p.in.Write(append(b, '\n'))
	return err
}

// Receive reads the next answer.
func (p *Process) Receive(answer any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	return json.Unmarshal(line, answer)
}

// Call sends a request and reads its answer.
func (p *Process) Call(request, answer any) error {
	if err := p.Send(request); err != nil {
		return err
	}
	return p.Receive(answer)
}

// Serve is the loop of a role: each line of stdin is a request, and what
// handle returns for it is the answer.
func Serve[Q, A any](handle func(Q) A) int {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var q Q
		if err := json.Unmarshal(line, &q); err != nil {
			fmt.Fprintln(os.Stderr, "role:", err)
			return 2
		}
		if err := out.Encode(handle(q)); err != nil {
			return 0
		}
	}
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
