;; Asks for linear memory until there is none.
(func $step (param i32) (result i32)
  (loop $again
    (drop (memory.grow (i32.const 64)))
    (br $again))
  (unreachable))
