package store

import (
	"cmp"
	"slices"
	"strings"
)

// RowFilter narrows a listing down further, by what is no exact value of a
// field, and orders it.
type RowFilter struct {
	Project string // the project's name; "" = any
	Title   string // contained in the title, in any case; "" = any
	Sort    string // one of SortKeys; "" = as listed
	Reverse bool
	Limit   int // <= 0 = no limit
}

// SortKeys are the orders of a listing: by time the newest comes first, by
// anything else the smallest.
func SortKeys() []string { return []string{"updated", "created", "title", "id", "status"} }

// SelectRows returns the rows that f selects, in its order; equal ones stay as
// they were.
func SelectRows(rows []Row, f RowFilter) []Row {
	title := strings.ToLower(f.Title)
	out := make([]Row, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		if f.Project != "" && r.Project != f.Project || title != "" && !strings.Contains(strings.ToLower(r.Title), title) {
			continue
		}
		out = append(out, *r)
	}
	order := func(a, b Row) int { return compareRows(a, b, f.Sort) }
	if f.Sort != "" && !slices.IsSortedFunc(out, order) {
		slices.SortStableFunc(out, order)
	}
	if f.Reverse {
		slices.Reverse(out)
	}
	if f.Limit > 0 {
		out = out[:min(f.Limit, len(out))]
	}
	return out
}

func compareRows(a, b Row, key string) int {
	switch key {
	case "created":
		return cmp.Compare(b.CreatedAt, a.CreatedAt)
	case "title":
		return cmp.Compare(strings.ToLower(a.Title), strings.ToLower(b.Title))
	case "id":
		return cmp.Compare(a.ID, b.ID)
	case "status":
		return cmp.Compare(a.Status, b.Status)
	}
	return cmp.Compare(b.UpdatedAt, a.UpdatedAt)
}
