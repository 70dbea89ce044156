package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/fsnode"
	"github.com/sessionfs/sessionfs/store"
)

func newStatusCommand(a *app) *cobra.Command {
	var config, asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the store, its mounts and its health, or the configuration",
		Long: `Show where the store is and what is in it, where it is mounted, and what is wrong
with its registry and its root ("sessionfs check" looks into the sessions too).
With --config show every effective setting and where it comes from.`,
		Args: arity(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config {
				return a.printConfig(asJSON)
			}
			return a.withStore(cmd, true, func(ctx context.Context, st *store.Store) error {
				s, err := gatherStatus(ctx, st)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, s)
				}
				return a.writeStatus(s)
			})
		},
	}
	cmd.Flags().BoolVar(&config, "config", false, "show the effective settings")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; with --config one a setting")
	return cmd
}

// statusJSON is the state of a store.
type statusJSON struct {
	Store    string         `json:"store"`
	Sessions int            `json:"sessions"`
	Archived int            `json:"archived"`
	Running  []string       `json:"running"`
	Mounts   []mountJSON    `json:"mounts"`
	Findings map[string]int `json:"findings"` // by severity, of the root alone
	Failed   int            `json:"failed"`   // files in failed/
}

type mountJSON struct {
	Mountpoint string `json:"mountpoint"`
	PID        int    `json:"pid"`
	Answers    bool   `json:"answers"`
	Metrics    string `json:"metrics,omitempty"` // the address of its figures
}

func gatherStatus(ctx context.Context, st *store.Store) (statusJSON, error) {
	s := statusJSON{Store: st.Root(), Running: []string{}, Mounts: []mountJSON{}, Findings: map[string]int{}}
	rows, err := st.ListSessions(ctx, store.ListQuery{IncludeArchived: true})
	if err != nil {
		return s, err
	}
	for _, row := range rows {
		if row.Archived {
			s.Archived++
		} else {
			s.Sessions++
		}
		if statusMark(row) == "> " {
			s.Running = append(s.Running, row.ID)
		}
	}
	if err := st.CheckRoot(ctx, func(f store.Finding) { s.Findings[string(f.Severity)]++ }); err != nil {
		return s, err
	}
	for _, m := range liveMounts(st.Root()) {
		m.Answers = fsnode.Probe(m.Mountpoint) == nil
		s.Mounts = append(s.Mounts, m)
	}
	if dir, err := stateDir(); err == nil {
		entries, _ := os.ReadDir(filepath.Join(dir, "failed"))
		s.Failed = len(entries)
	}
	return s, nil
}

// liveMounts lists the mounts of a store that a living process serves: their
// records are locked (record.go).
func liveMounts(root string) []mountJSON {
	dir, err := stateDir()
	if err != nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "mounts", "*.json"))
	var out []mountJSON
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		dead := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
		var r struct {
			PID               int
			Mountpoint, Store string
			Metrics           string
		}
		err = json.NewDecoder(file).Decode(&r)
		file.Close()
		if err == nil && !dead && sameDir(r.Store, root) {
			out = append(out, mountJSON{Mountpoint: r.Mountpoint, PID: r.PID, Metrics: r.Metrics})
		}
	}
	return out
}

// sameDir reports whether two paths name one directory.
func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func (a *app) writeStatus(s statusJSON) error {
	var b strings.Builder
	fmt.Fprintf(&b, "store:     %s\nsessions:  %d, %d archived\n", oneLine(s.Store), s.Sessions, s.Archived)
	for _, id := range s.Running {
		fmt.Fprintf(&b, "running:   %s\n", oneLine(id))
	}
	for _, m := range s.Mounts {
		state := fmt.Sprintf("process %d", m.PID)
		if !m.Answers {
			state += a.paint(red, ", does not answer")
		}
		if m.Metrics != "" {
			state += ", http://" + oneLine(m.Metrics) + "/metrics"
		}
		fmt.Fprintf(&b, "mounted:   %s (%s)\n", oneLine(m.Mountpoint), state)
	}
	if s.Failed > 0 {
		fmt.Fprintf(&b, "failed:    %s that could not be applied\n", count(s.Failed, "written file"))
	}
	health := "good"
	if n := s.Findings[string(store.Fault)] + s.Findings[string(store.Warning)]; n > 0 {
		health = a.paint(yellow, fmt.Sprintf("%s, 'sessionfs check' shows them", count(n, "finding")))
	}
	fmt.Fprintf(&b, "health:    %s\n", health)
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}
