;; Says no, in words that would hide what follows them.
(data (i32.const 256) "give me\e2\80\ae more")
(func $init (param i32 i32) (result i32)
  (i32.store8 (i32.const 0) (i32.const 1))
  (i32.store (i32.const 4) (i32.const 256))
  (i32.store (i32.const 8) (i32.const 15))
  (i32.const 0))
