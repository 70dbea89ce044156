package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sessionfs/sessionfs/store"
)

// sampleEpoch is when the sample's first message was said.
var sampleEpoch = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

func newSampleStoreCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "sample-store DIR",
		Short:  "Write a store with a few invented sessions",
		Long:   `Write a store with a few invented sessions, always the same, to try things out on.`,
		Args:   arity(1, 1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := a.logger()
			if err != nil {
				return err
			}
			root, err := filepath.Abs(args[0])
			if err != nil {
				return failf(exitFailure, "", "sample store: %w", err)
			}
			if entries, err := os.ReadDir(root); err == nil && len(entries) > 0 {
				return failf(exitConflict, "choose a new directory", "sample store: %s: the directory is not empty", root)
			}
			clock := sampleClock()
			st, err := store.Open(cmd.Context(), store.Options{Root: root, Create: true, Clock: clock, Log: log})
			if err != nil {
				return err
			}
			err = writeSample(cmd.Context(), st, clock)
			if closeErr := st.Close(); err == nil {
				err = closeErr
			}
			return err
		},
	}
}

// sampleClock is a clock that goes on by a second at each look.
func sampleClock() func() time.Time {
	var mu sync.Mutex
	now := sampleEpoch
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// sampleMessage is a message dict (reference 2.11). An empty field is left out.
type sampleMessage struct {
	ID          string       `json:"id"`
	Role        string       `json:"role"`
	Content     string       `json:"content"`
	Predecessor string       `json:"predecessor,omitempty"`
	Timestamp   json.Number  `json:"timestamp"` // a float on disk, also when whole
	Model       string       `json:"token_model,omitempty"`
	Function    string       `json:"function,omitempty"`
	ForkedFrom  string       `json:"forked_from,omitempty"`
	Extra       *sampleExtra `json:"extra,omitempty"`
}

type sampleExtra struct {
	ToolUse sampleCall `json:"tool_use"`
}

type sampleCall struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments"`
	Caller    string            `json:"caller"`
	CallID    string            `json:"tool_call_id"`
}

// sampleSession is one session of the sample.
type sampleSession struct {
	id, title string
	messages  []sampleMessage
	names     map[string]string // node id to branch name
	head      string
	archived  bool
	files     map[string]string // below workdir/attachments
}

func writeSample(ctx context.Context, st *store.Store, clock func() time.Time) error {
	for _, s := range sampleSessions() {
		if err := s.write(ctx, st, clock); err != nil {
			return fmt.Errorf("sample session %s: %w", s.id, err)
		}
	}
	return nil
}

func (s sampleSession) write(ctx context.Context, st *store.Store, clock func() time.Time) error {
	if err := st.CreateSession(ctx, store.NewSession{ID: s.id, Title: s.title, Root: true}); err != nil {
		return err
	}
	sn, err := st.Load(ctx, s.id)
	if err != nil {
		return err
	}
	if err := s.attach(st, sn.Dir); err != nil {
		return err
	}
	for _, m := range s.messages {
		if err := s.say(ctx, st, sn.Dir, m, clock); err != nil {
			return err
		}
	}
	return s.finish(ctx, st)
}

// attach writes the session's attachments, as an upload does before its turn.
func (s sampleSession) attach(st *store.Store, dir string) error {
	if len(s.files) == 0 {
		return nil
	}
	dir = filepath.Join(dir, "workdir", "attachments")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	st.Dirty(s.id)
	return nil
}

func (s sampleSession) say(ctx context.Context, st *store.Store, dir string, m sampleMessage, clock func() time.Time) error {
	m.Timestamp = json.Number(fmt.Sprintf("%d.0", clock().Unix()))
	if m.Role == "assistant" {
		m.Model = "sample-model-1"
	}
	for name, text := range s.files {
		path := filepath.Join(dir, "workdir", "attachments", name)
		m.Content = string(bytes.ReplaceAll([]byte(m.Content), []byte("{"+name+"}"), attachmentMarker(name, path, len(text))))
	}
	var b bytes.Buffer
	if err := printJSON(&b, m); err != nil {
		return err
	}
	_, err := st.AppendMessage(ctx, s.id, b.Bytes())
	return err
}

// attachmentMarker is how a message refers to an attachment (reference 9.2).
func attachmentMarker(name, path string, size int) []byte {
	quoted, _ := json.Marshal(path) // a string cannot fail
	kb := max(1, (size+512)/1024)
	return fmt.Appendf(nil, "[attachment: %s (%s, %d KB) @json %s]", name, filepath.Ext(name)[1:], kb, quoted)
}

// finish names branches, sets head and archive flag, and commits.
func (s sampleSession) finish(ctx context.Context, st *store.Store) error {
	for _, m := range s.messages { // in order, not the map's
		if name := s.names[m.ID]; name != "" {
			if err := st.SetBranchName(ctx, s.id, m.ID, name); err != nil {
				return err
			}
		}
	}
	if s.head != "" {
		if _, err := st.SetHead(ctx, s.id, s.head, store.HeadMove{}); err != nil {
			return err
		}
	}
	if s.archived {
		if err := st.SetArchived(ctx, s.id, true); err != nil {
			return err
		}
	}
	_, _, err := st.CommitTurn(ctx, s.id, "turn: "+s.title)
	return err
}
