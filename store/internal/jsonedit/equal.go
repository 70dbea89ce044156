package jsonedit

import "bytes"

// Equal reports whether two raw values are the same JSON value: the order of an
// object's keys and the way a string is escaped do not matter, of duplicate
// keys the last one counts, and numbers are equal when their text is or, unless
// both are integers, their value. Invalid values are equal only byte for byte.
func Equal(a, b []byte) bool {
	a, b = trim(a), trim(b)
	if bytes.Equal(a, b) {
		return true
	}
	switch {
	case IsString(a):
		x, okA := stringBody(a)
		y, okB := stringBody(b)
		return okA && okB && bytes.Equal(appendDecoded(nil, x, true), appendDecoded(nil, y, true))
	case IsNumber(a):
		return IsNumber(b) && equalNumbers(a, b)
	case IsArray(a):
		return equalArrays(a, b)
	case IsObject(a):
		return equalObjects(a, b)
	}
	return false
}

func equalNumbers(a, b []byte) bool {
	if isIntText(a) && isIntText(b) { // of any size: a float would round them
		return isZeroInt(a) && isZeroInt(b)
	}
	x, okA := Number(a)
	y, okB := Number(b)
	return okA && okB && x == y
}

func isZeroInt(b []byte) bool { return string(b) == "0" || string(b) == "-0" }

func equalArrays(a, b []byte) bool {
	x, okA := Array(a)
	y, okB := Array(b)
	if !okA || !okB || len(x) != len(y) {
		return false
	}
	for i := range x {
		if !Equal(x[i], y[i]) {
			return false
		}
	}
	return true
}

func equalObjects(a, b []byte) bool {
	x, errA := ParseObject(a)
	y, errB := ParseObject(b)
	if errA != nil || errB != nil {
		return false
	}
	keys := x.Keys()
	if len(keys) != len(y.Keys()) {
		return false
	}
	for _, k := range keys {
		v, _ := x.Get(k)
		w, ok := y.Get(k)
		if !ok || !Equal(v, w) {
			return false
		}
	}
	return true
}
