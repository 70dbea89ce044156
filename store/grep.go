package store

import (
	"bytes"
	"context"
	"errors"
	"regexp"

	"github.com/sessionfs/sessionfs/dag"
)

// GrepQuery says what Grep looks for and where.
type GrepQuery struct {
	Pattern *regexp.Regexp // matched against each line
	// Sessions limits the search to these ids; none means all that are
	// listed, archived ones included when IncludeArchived is set.
	Sessions        []string
	IncludeArchived bool
	// Branch limits the search to one branch of each session; "" means all
	// messages of all branches.
	Branch Ref
	// Role limits the search to messages of this speaker (dag.Node.Speaker).
	Role string
}

// Match is a line that Grep found.
type Match struct {
	Session string
	Node    dag.Node
	Line    int // counted from 1
	Text    string
}

// Grep reports every line of a message's text that the pattern matches:
// sessions in the listing's order, messages in stored order, lines in their
// own. With a branch, sessions that have no such branch are passed over, unless
// they were named. Report ends the search with an error of its own. The root
// node and the machinery's nodes are no messages. A message that cannot be read
// is among the session's problems and is passed over.
func (s *Store) Grep(ctx context.Context, q GrepQuery, report func(Match) error) error {
	ids := q.Sessions
	if len(ids) == 0 {
		rows, err := s.ListSessions(ctx, ListQuery{IncludeArchived: q.IncludeArchived})
		if err != nil {
			return err
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.grepSession(ctx, q, id, report)
		var e *Error
		if len(q.Sessions) == 0 && errors.As(err, &e) {
			continue // deleted meanwhile, without this branch, or damaged
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) grepSession(ctx context.Context, q GrepQuery, id string, report func(Match) error) error {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return err
	}
	nodes := sn.Index.Messages()
	if q.Branch != "" {
		node, err := sn.Resolve(q.Branch)
		if err != nil {
			return err
		}
		if nodes, err = sn.BranchOf(node); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if q.Role != "" && n.Speaker() != q.Role {
			continue
		}
		text, err := sn.Text(n.ID)
		if err != nil {
			continue
		}
		if err := grepText(q.Pattern, id, n, text, report); err != nil {
			return err
		}
	}
	return nil
}

func grepText(p *regexp.Regexp, id string, n dag.Node, text []byte, report func(Match) error) error {
	at := 0
	for line := range bytes.Lines(text) {
		at++
		line = bytes.TrimSuffix(line, []byte("\n"))
		if !p.Match(line) {
			continue
		}
		if err := report(Match{Session: id, Node: n, Line: at, Text: string(line)}); err != nil {
			return err
		}
	}
	return nil
}

// GrepPattern makes a pattern of what a user typed: a text to be found as it
// stands, or a regular expression (RE2's syntax). ^ and $ are a line's ends.
func GrepPattern(text string, expression, ignoreCase bool) (*regexp.Regexp, error) {
	if !expression {
		text = regexp.QuoteMeta(text)
	}
	if ignoreCase {
		text = "(?i:" + text + ")"
	}
	return regexp.Compile(text)
}
