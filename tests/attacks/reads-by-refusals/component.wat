;; Reads a number of a tensor out of the refusal to use it as an index, again and again, and says what it was told.
;; 256: a shape [1]; 272: the number.
(data (i32.const 256) "\01\00\00\00")
(data (i32.const 272) "\ff\ff\ff\7f")
(func $step (param i32) (result i32)
  (local $one i32) (local $number i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (local.set $one (call $handle))
  (call $tensor/from-indices (i32.const 272) (i32.const 1) (i32.const 256) (i32.const 1) (i32.const 64))
  (local.set $number (call $handle))
  (loop $more
    (global.set $heap (i32.const 4096))
    (call $tensor/tensor.index-select (local.get $one) (i32.const 0) (local.get $number) (i32.const 64))
    ;; As long as the code of the error is as long as `invalid-argument`.
    (br_if $more (i32.eq (i32.load (i32.const 72)) (i32.const 16))))
  (call $pass-on))
