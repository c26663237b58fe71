-- What is sold of each product, day by day, in all countries together.
-- owner: products@example.org
FOR t IN TIMESERIES('2010-12-01', '2011-02-28')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE products_sales PARTITION (day = partition_day)
SELECT product, SUM(pieces) AS pieces, SUM(revenue) AS revenue
FROM store_sales
WHERE store_sales.day = partition_day
GROUP BY product
