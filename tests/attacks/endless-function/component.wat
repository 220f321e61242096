;; Brings one function that would keep a compiler busy.
(component
  (core module $m
    (func (param i32)
@600000      nop
    )))
