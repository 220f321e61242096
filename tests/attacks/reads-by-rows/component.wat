;; Makes rows of its own tensors to be told how many of their numbers are 1, again and again.
;; 256: a shape [1, 2].
(data (i32.const 256) "\01\00\00\00\02\00\00\00")
(func $step (param i32) (result i32)
  (local $ids i32) (local $marks i32) (local $rows i32)
  (call $tensor/zeros (i32.const 256) (i32.const 2) (i32.const 1) (i32.const 64))
  (local.set $ids (call $handle))
  (call $tensor/ones (i32.const 256) (i32.const 2) (i32.const 5) (i32.const 64))
  (local.set $marks (call $handle))
  (loop $more
    (call $data/make-rows (local.get $ids) (local.get $marks) (local.get $marks) (i32.const 64))
    (if (i32.load8_u (i32.const 64)) (then (return (call $pass-on))))
    (local.set $rows (call $handle))
    (drop (call $data/rows.targets (local.get $rows)))
    (call $data/rows.drop (local.get $rows))
    (br $more))
  (unreachable))
