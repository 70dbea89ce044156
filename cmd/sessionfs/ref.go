package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sessionfs/sessionfs/store"
)

// maxCandidates bounds the list that an ambiguous reference prints.
const maxCandidates = 10

// resolveSession finds the session that a reference names: an exact id, else
// the one session whose id begins with it or whose title it is exactly.
func resolveSession(ctx context.Context, st *store.Store, ref string) (string, error) {
	if ref == "" {
		return "", &store.Error{Code: store.Invalid, Op: "find session", Err: errors.New("the reference is empty")}
	}
	// A session without a row (one that lost its meta.json, say) is not
	// listed, but its id still names it.
	_, err := st.Load(ctx, ref)
	if err == nil || store.CodeOf(err) == store.Corrupt {
		return ref, nil
	}
	if code := store.CodeOf(err); code != store.NotFound && code != store.Invalid {
		return "", err
	}
	rows, err := st.ListSessions(ctx, store.ListQuery{IncludeArchived: true})
	if err != nil {
		return "", err
	}
	return pickSession(rows, ref)
}

// pickSession chooses among rows; it does no I/O.
func pickSession(rows []store.Row, ref string) (string, error) {
	var found []store.Row
	for _, row := range rows {
		if row.ID == ref {
			return row.ID, nil
		}
		if strings.HasPrefix(row.ID, ref) || row.Title == ref {
			found = append(found, row)
		}
	}
	switch len(found) {
	case 0:
		return "", &store.Error{Code: store.NotFound, Op: "find session", Session: ref,
			Err: errors.New("no session has this id, prefix or title")}
	case 1:
		return found[0].ID, nil
	}
	return "", &store.Error{Code: store.Ambiguous, Op: "find session", Session: ref,
		Err: fmt.Errorf("%d sessions match: %s", len(found), candidates(found))}
}

func candidates(rows []store.Row) string {
	var parts []string
	for _, row := range rows {
		parts = append(parts, fmt.Sprintf("%s (%s)", row.ID, oneLine(row.Title)))
	}
	return listed(parts)
}

// listed puts the first candidates into one line.
func listed(parts []string) string {
	if len(parts) > maxCandidates {
		parts = append(parts[:maxCandidates:maxCandidates], "...")
	}
	return strings.Join(parts, ", ")
}
