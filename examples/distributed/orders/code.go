package main

import "strings"

// unitsOf returns how many units a code orders, and whether it is one. People have typed it: a
// letter, the number of an article, and perhaps a quantity: "A-0042", " a 42 x3", "b/7*12".
func unitsOf(code string) (units int64, ok bool) {
	code = strings.Trim(code, " ")
	if code == "" || code[0]|' ' < 'a' || code[0]|' ' > 'z' {
		return 0, false
	}
	code = code[1:]
	if code != "" && strings.IndexByte("-/ ", code[0]) >= 0 {
		code = code[1:]
	}
	_, code, ok = number(code, 4)
	if !ok || code == "" {
		return 1, ok
	}
	code = strings.TrimLeft(code, " ")
	if code[0] != 'x' && code[0] != '*' {
		return 0, false
	}
	units, code, ok = number(strings.TrimLeft(code[1:], " "), 2)
	return units, ok && code == "" && units > 0
}

// number splits a text after the number of at most so many digits that it begins with.
func number(text string, digits int) (n int64, rest string, ok bool) {
	i := 0
	for ; i < len(text) && i < digits && text[i] >= '0' && text[i] <= '9'; i++ {
		n = 10*n + int64(text[i]-'0')
	}
	return n, text[i:], i > 0
}
