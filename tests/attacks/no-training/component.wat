;; Offers nothing.
(component)
