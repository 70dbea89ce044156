package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// arm is one side of a comparison. Do does it once and says how long it took,
// so that it can prepare itself outside of the time.
type arm struct {
	name string
	do   func() (time.Duration, error)
}

// timed is an arm of which everything is measured.
func timed(name string, f func() error) arm {
	return arm{name, func() (time.Duration, error) {
		began := time.Now()
		err := f()
		return time.Since(began), err
	}}
}

// each divides an arm's time by the units of work in it.
func each(units int, a arm) arm {
	return arm{a.name, func() (time.Duration, error) {
		d, err := a.do()
		return d / time.Duration(max(units, 1)), err
	}}
}

// errTimeOver says that no figure is begun any more.
var errTimeOver = errors.New("left out: the time was over")

// over reports whether the run has taken all the time that it has.
func (s *suite) over() bool { return s.limit > 0 && time.Since(s.began) > s.limit }

// interleave does every arm warm times unmeasured, then reps times in turn,
// each round beginning with another arm. The result is in seconds, by arm.
// When the run's time is over, fewer rounds have to do.
func (s *suite) interleave(reps, warm int, arms ...arm) (map[string][]float64, error) {
	if s.over() {
		return nil, errTimeOver
	}
	out := make(map[string][]float64, len(arms))
	for round := range warm + reps {
		if round > warm && s.over() {
			break
		}
		for k := range arms {
			a := arms[(k+round)%len(arms)]
			if err := s.ctx.Err(); err != nil {
				return nil, err
			}
			d, err := a.do()
			s.alive()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			if round >= warm {
				out[a.name] = append(out[a.name], d.Seconds())
			}
		}
	}
	return out, nil
}

// compare adds the figure of one arm's ratio to another's. What was done many
// times, a single write at a time, has its own median on each side: fsync
// takes one of several times, and pairs of them say little.
func (s *suite) compare(name string, bound float64, raw map[string][]float64, a, b string) {
	value := ratio(raw[a], raw[b])
	if len(raw[a]) >= 20 {
		value = median(raw[a]) / median(raw[b])
	}
	s.add(figure{Name: name, Unit: "x", Bound: bound, Value: value,
		Note: fmt.Sprintf("%s %s, %s %s", a, scaled(median(raw[a])), b, scaled(median(raw[b]))),
		Raw:  map[string][]float64{a: raw[a], b: raw[b]}})
}

// command runs a program and throws its output away.
func (s *suite) command(dir, name string, args ...string) error {
	_, err := s.run(dir, nil, name, args...)
	return err
}

// output runs a program and returns what it printed.
func (s *suite) output(dir, name string, args ...string) (string, error) {
	var b strings.Builder
	_, err := s.run(dir, &b, name, args...)
	return b.String(), err
}

// run runs a program, from its start to its end. grep that finds nothing is no
// failure.
func (s *suite) run(dir string, stdout io.Writer, name string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if stdout != nil {
		cmd.Stdout = stdout
	} else {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		defer null.Close()
		cmd.Stdout = null // the program's own, so that nothing is copied
	}
	began := time.Now()
	err := cmd.Run()
	d := time.Since(began)
	s.alive()
	var exit *exec.ExitError
	if errors.As(err, &exit) && name == "grep" && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return d, fmt.Errorf("%s %.60s: %w %.300s", name, strings.Join(args, " "), err, stderr.String())
	}
	return d, nil
}

// sessionfs runs the program that is measured, on a store.
func (s *suite) sessionfs(store string, args ...string) error {
	return s.command("", s.bin, append([]string{"--store", store}, args...)...)
}

// durably puts a file in place as every writer of a store does: a private
// temporary file beside it, fsync, rename, fsync of the directory.
func durably(path string, data []byte) error {
	temp := path + ".0123456789abcdef0123456789abcdef.tmp"
	fd, err := unix.Open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, data)
	if err = errors.Join(err, unix.Fsync(fd), unix.Close(fd)); err != nil {
		return err
	}
	if err := unix.Rename(temp, path); err != nil {
		return err
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(dir), unix.Close(dir))
}

// diskUse is what a directory takes on disk, in bytes.
func diskUse(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // packed meanwhile
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err
}
