// Command bench measures sessionfs the way a user feels it, and prints each
// figure beside the bound that it is held to (docs/performance.md).
//
// Ratios are taken within one run: what is compared is done in turn, several
// times, and the median counts. The mount is the built program, served by a
// process of its own on a store that is made for the run; the figures of the
// store come from the store's own package. Nothing leaves the machine, and
// nothing of the user's own is read or written.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == watchRole {
		os.Exit(watchMain(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

// config is what the command line chose.
type config struct {
	sizes
	only   *regexp.Regexp
	json   string
	dir    string
	bin    string
	limit  time.Duration
	strict bool
	md     bool
	list   bool
}

func parse(args []string) (config, error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := f.Bool("quick", os.Getenv("BENCH") == "quick", "smaller sizes, fewer repetitions (also: BENCH=quick)")
	reps := f.Int("reps", 0, "repetitions of each side of a comparison (0: 5, quick: 3)")
	only := f.String("only", "", "measure only the figures whose group/name matches this expression")
	c := config{}
	f.StringVar(&c.json, "json", "", "write all measured values to this file as JSON")
	f.StringVar(&c.dir, "dir", "", "directory for stores and mounts, on the disk to be measured (default: $TMPDIR, else /var/tmp)")
	f.StringVar(&c.bin, "bin", "", "the sessionfs to measure (default: built from this tree)")
	f.DurationVar(&c.limit, "limit", 0, "begin no figure after this time (0: 12m30s, quick: 90s)")
	f.BoolVar(&c.strict, "strict", false, "exit with 1 when a figure falls short")
	f.BoolVar(&c.md, "md", false, "print the table as Markdown, for docs/performance.md")
	f.BoolVar(&c.list, "list", false, "list the figures and measure nothing")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	var err error
	if c.only, err = regexp.Compile(*only); err != nil {
		return c, err
	}
	c.sizes = fullSizes
	if *quick {
		c.sizes = quickSizes
	}
	if *reps > 0 {
		c.reps = *reps
	}
	if c.limit == 0 {
		c.limit = c.sizes.limit
	}
	if c.dir == "" {
		if c.dir = os.Getenv("TMPDIR"); c.dir == "" {
			c.dir = "/var/tmp"
		}
	}
	c.dir, err = filepath.Abs(c.dir)
	return c, err
}

// run is the whole program; it returns the exit status.
func run(args []string) int {
	c, err := parse(args)
	if err != nil {
		return 2
	}
	if c.list {
		for _, g := range groups {
			for _, name := range g.figures {
				fmt.Println(g.name + "/" + name)
			}
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s, err := newSuite(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	// A step that hangs must not keep what was started from being taken away.
	measured := make(chan struct{})
	go func() {
		<-ctx.Done()
		stop() // a second signal ends at once
		select {
		case <-measured:
		case <-time.After(10 * time.Second):
			s.close()
			os.Exit(130)
		}
	}()
	err = s.runGroups()
	interrupted := ctx.Err() != nil
	close(measured)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	s.stopMounts()
	status := s.finish(err != nil) // when interrupted: what was measured until then
	s.progress("removing what was made")
	s.close()
	if interrupted {
		return 130
	}
	return status
}

// finish prints the result and returns the exit status.
func (s *suite) finish(failed bool) int {
	if s.md {
		s.rep.printMarkdown(os.Stdout)
	} else {
		s.rep.print(os.Stdout)
	}
	if s.json != "" {
		if err := s.rep.writeJSON(s.json); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	if failed || s.strict && len(s.rep.short()) > 0 {
		return 1
	}
	return 0
}
